"""What people see: rows, tables, status, progress on a terminal, the demo."""
