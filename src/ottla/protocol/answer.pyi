"""Nothing here is for Python: `answer.pyx` is called by the requests of `scan.pyx`, whose stub has the promises."""
