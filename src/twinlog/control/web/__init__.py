"""One HTTP server of a process: metrics and probes, REST, and Connect's paths.

`server` listens, each `connection` has its deadline, `front` decides who comes in and what is asked
of whom. Below it `api` has `/api/v1`, and `connect` the paths that scripts for MirrorMaker 2 know.
Both are loaded at the first request for them; `page` has the files of the page.
"""
