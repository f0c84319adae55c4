"""What ails a run: the eight steps of the debug order, over whatever there is of it. It only ever reads."""
