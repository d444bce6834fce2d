"""Sources that push: a subscription in the driver gives records, which wait as pieces of their epochs for a job."""
