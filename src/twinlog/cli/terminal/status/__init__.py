"""How `twinlog status` shows flows: `rows.py` (rows of topics), `topic_table.py` (their columns),
`screen.py` (flows, topics and totals, as wide as the terminal), `watching.py` (periodic refresh).
"""
