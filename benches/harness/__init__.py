"""From a case to a row of a table: results are checked, then timed beside the limits of the machine."""
