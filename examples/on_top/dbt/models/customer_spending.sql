SELECT
    c.id AS customer_id,
    c.name,
    count(o.id) AS orders,
    coalesce(sum(o.total), 0) AS total
FROM {{ source('shop', 'customers') }} AS c
LEFT JOIN {{ source('shop', 'orders') }} AS o ON o.customer_id = c.id
GROUP BY ALL
