"""A Parquet table as an output: files beside a manifest for each commit."""
