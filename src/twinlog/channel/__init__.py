"""The connection between the driver and its lanes, both ends.

Read `frames` (the bytes), `codec` and `shapes` (messages as JSON), `lane_secrets` (who may speak);
then the driver's end: `server`, `stranger` (before it is known), `peer`; and the lane's: `client`,
behind the `port` that the lane's loop uses. `frame_socket` and `certificate` serve both.
"""
