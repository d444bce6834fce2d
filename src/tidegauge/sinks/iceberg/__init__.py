"""Tables of Iceberg as outputs: tasks write Parquet files, the driver commits them with pyiceberg."""
