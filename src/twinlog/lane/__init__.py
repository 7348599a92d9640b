"""One lane at work: sockets, threads and the loop that moves batches.

Read `loop`, then `stay` (what is known of a partition), `assignments` (its stay in the lane) and
`cold_starts`; `ports` are what the lane reaches the world by, `sides` its two clusters, `watches`
what it looks for beside the copy, `events` what these say of a partition, `messages` all that the
driver says to it and hears. `late_requests` bounds how long requests of a lane that is gone may
arrive: the number, and why. Who waits for it: `cold_starts` and `mirror.copy.earlier_lane`, with
what they may not send yet; `control.lanes.takes.put_off`, with what never began;
`control.leading.claims`, and promotion and rebuild of `control`.
"""
