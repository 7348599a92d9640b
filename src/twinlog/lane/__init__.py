"""One lane at work: sockets, threads and the loop that moves batches.

Read `loop`, then `assignments` (a partition's stay in the lane) and `cold_starts`; `sides` are its
two clusters, `watches` what it looks for beside the copy, `messages` all that it says and hears.
`late_requests` bounds how long requests of a lane that is gone may arrive; the driver waits for it
(`control.running.giving`).
"""
