"""The series of `/metrics`. `readings` has the values of all flows at one moment, `exposition`
fills the series of `twinlog.metrics`, and `series_text` encodes them.
"""
