"""The store: one small transactional database that holds what must outlive the driver."""
