"""Bytes <-> values of Kafka's record formats: no I/O, no clock, no logging."""
