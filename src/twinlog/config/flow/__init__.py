"""What one flow is to do, from the settings that count for it.

`schema` has the values that everything below reads; `precedence` says which line counts, `flows`
puts a flow together and refuses settings that contradict each other.
"""
