"""Bytes <-> values of Kafka's formats: no I/O, no clock, no logging.

Read `record_batch`, then `record`, `decoding` and `encoding`; `records` is their door. `requests`
has Fetch and Produce as lanes send them, `kernels` the loops over records, compiled. `error_codes`
is the table of Kafka's errors.
"""
