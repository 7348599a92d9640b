"""Convert between bytes and values of Kafka's formats: no I/O, no clock, no logging.

Read `record_batch`, then `record`, `decoding` and `encoding`; `records` is the public interface to
them. `requests` contains Fetch and Produce as the lanes send them, `kernels` the compiled loops
over records. `error_codes` is the table of Kafka's error codes.
"""
