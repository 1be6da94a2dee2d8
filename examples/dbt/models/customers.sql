with customers as (
    select * from {{ ref('stg_customers') }}
)

select
    customers.customer_id,
    customers.name,
    coalesce(totals.orders, 0) as orders,
    totals.amount,
    totals.last_order
from customers
left join {{ ref('orders_by_customer') }} as totals using (customer_id)
