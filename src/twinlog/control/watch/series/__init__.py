"""The series of `/metrics`: `readings` has what is known of all flows at one moment, `exposition`
fills the series that `twinlog.metrics` names, `series_text` writes them.
"""
