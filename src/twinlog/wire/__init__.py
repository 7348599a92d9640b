"""Kafka's formats: conversion between bytes and values, without I/O, clock or logging.

There are two ways through a record batch. The *shallow* path (`record_batch`) reads and rewrites
only its header, which is enough for most batches of a copy. The *deep* path (`records`) decodes the
records. `kernels` has its compiled loops.

`joining` combines small batches, and `compression` also changes the codec of a batch. `fetch` and
`produce` encode the requests of these names, as lanes send them, without a schema. `error_codes` is
the table of Kafka's error codes.
"""
