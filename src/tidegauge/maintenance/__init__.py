"""Changes that a person makes to a flow by hand: back up, recover, repair, resume, skip, compact."""
