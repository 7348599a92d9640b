"""`twinlog doctor`: why a flow is slow or has stopped. Read in this order: `findings` (the data and
the conclusions), `observing` (the collection).
"""
