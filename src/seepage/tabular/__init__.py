"""Tables: schema, cells, encoding, public statistics and associations between columns."""
