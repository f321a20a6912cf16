//! PAI-DLC on the gateway: the calls, the wire types, and what an answer proves.
