//! Cells, columns, verdicts, drop reasons and the layout of jobs.
