"""Conditions that no response shows, so a lane checks for them in the background: partitions
without a leader, silent brokers, missing offsets, foreign records, a changed producer ID expiry.
"""
