SELECT id, upper(trim(customer)) AS customer, amount, at
FROM raw_orders
