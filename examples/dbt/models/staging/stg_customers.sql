select id as customer_id, btrim(name) as name
from {{ source('shop', 'customers') }}
