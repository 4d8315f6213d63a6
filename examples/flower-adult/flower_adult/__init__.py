"""A Flower app on the Adult table, with seepage's leak guard at the clients and its capture at the server."""
