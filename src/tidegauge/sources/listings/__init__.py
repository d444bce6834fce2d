"""Files and objects that are listed: `source`."""
