"""The series of `/metrics`. `readings` has the values of all flows at one moment, and
`exposition` fills and encodes the series of `twinlog.metrics`.
"""
