"""The Spark engine: each job is one pass over its sources, on the session that the user has."""
