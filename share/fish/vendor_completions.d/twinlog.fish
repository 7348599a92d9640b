# fish reads this file when a line with twinlog is completed for the first time.
twinlog completion fish | source
