SELECT clean.*, customers.name, coalesce(customers.country, 'unknown') AS country
FROM clean
LEFT JOIN customers ON clean.customer = customers.customer
