"""The connection between the driver and its lanes, both ends.

Read `frames` (the bytes, and why silence is measured the same at both ends), `codec` (messages as
JSON) and `lane_secrets` (security). Then read the driver's end, `server`, and the lane's end,
`client`. `lending` connects lanes with the application of transforms.
"""
