"""seepage measures what collaborative learning on tables gives away."""
