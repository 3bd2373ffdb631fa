"""What people see: rows, tables, status, progress on a terminal, the demo."""

from enum import StrEnum


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
