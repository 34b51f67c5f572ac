"""What stands behind all pages: clients of users, the gate for changes, the audit log, jobs, samples."""
