"""All of HTTP that is not one page: rendering, forms, sessions, security headers, error pages, event streams."""
