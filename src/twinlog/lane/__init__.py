"""One lane at work: sockets, threads and the loop that moves batches."""
