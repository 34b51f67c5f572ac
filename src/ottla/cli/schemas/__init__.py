"""Keys and values by the schemas of a registry: `ottla consume` decodes them, `ottla produce` encodes them."""
