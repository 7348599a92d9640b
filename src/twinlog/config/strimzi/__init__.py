"""A Strimzi KafkaMirrorMaker2 resource as settings of an mm2.properties.

`document` finds it in a file. `resource` reads it, and names the field of a key in messages.
`fields` is the table of what each field does; `mirror`, `settings` and `security` turn those that
act into keys.
"""
