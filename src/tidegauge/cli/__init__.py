"""The command line: `tidegauge run | status | epochs | explain`."""
