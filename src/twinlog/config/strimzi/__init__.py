"""Reads a Strimzi KafkaMirrorMaker2 resource as settings of an mm2.properties.

`resource` finds the resource in a file, reads it, and maps keys to fields in messages. `fields` is
the table of all fields; `secrets` reads Kubernetes secrets, and converts the fields of
authentication to keys.
"""
