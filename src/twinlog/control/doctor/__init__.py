"""`twinlog doctor`: why a flow is slow or has stopped. Read in this order: `observation` (the
data), `findings` (the conclusions, in `standstill` and `pace`), `observing` (the collection).
"""
