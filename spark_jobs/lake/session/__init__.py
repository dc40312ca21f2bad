"""How the lake is opened: settings, catalogue, Java, jars and the Spark session."""
