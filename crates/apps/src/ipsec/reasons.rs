//! Drop reasons of IPsec.

chunk::drop_reasons! {
    /// What IPsec drops for.
    pub const BLOCK: 16, "IPsec";

    ESP_UNKNOWN_SPI = 0, "esp_unknown_spi", "ESP for an address of the router with an SPI that no association has",
        "Normal for a moment when keys change. Otherwise compare `ctl show sa` with the peer.";
    ESP_SHORT = 1, "esp_short", "an ESP packet is too short, or its length does not fit the cipher",
        "Check that both ends have the same algorithms.";
    ESP_FRAGMENT = 2, "esp_fragment", "a fragment: of an ESP packet that did not become whole, or of a packet for transport mode",
        "Look for loss on the path. Hosts that use transport mode must not fragment before it.";
    ESP_REPLAY = 3, "esp_replay", "the sequence number was accepted before, or is behind the replay window",
        "Normal for a few where the network reorders packets: raise `window`. Many of them may be an attack.";
    ESP_NOT_GENUINE = 4, "esp_not_genuine", "the integrity check value is wrong",
        "Check that both ends have the same keys and algorithms, and the same `esn`.";
    ESP_MALFORMED = 5, "esp_malformed", "padding or inner packet of a genuine ESP packet is wrong",
        "Check that both ends have the same `mode`. Otherwise the peer has a defect.";
    ESP_ENCAPSULATION = 6, "esp_encapsulation", "ESP came in UDP and the association is plain, or the other way round",
        "Set `udp` of both ends alike.";
    ESP_DUMMY = 7, "esp_dummy", "an ESP packet with next header 59, which is sent for its looks only",
        "Nothing: that is its purpose.";
    ESP_CONGESTION = 8, "esp_congestion", "the outer header has a congestion mark that the inner packet cannot have (RFC 6040)",
        "Nothing: dropping is the signal of congestion for such a packet.";
    ESP_KEEP_ALIVE = 9, "esp_keep_alive", "a keep-alive of UDP encapsulation (RFC 3948)",
        "Nothing: that is its purpose.";
    ESP_POLICY = 10, "esp_policy", "an opened packet is none that the association may carry by the policies",
        "Check selectors and `reqid` of the policies of both ends.";
    POLICY_UNPROTECTED = 11, "policy_unprotected", "a packet came unprotected, and a policy protects packets like it",
        "Check that the peer protects these packets, or add a `bypass` policy before.";
    POLICY_DISCARD = 12, "policy_discard", "a policy discards the packet",
        "Nothing, if that is intended; otherwise check the order of the policies.";
    SA_MISSING = 13, "sa_missing", "a policy protects the packet, or it leaves by a tunnel interface, and no association serves it",
        "Add an association with the `reqid` of the policy, or the `if_id` of the interface (`ctl sa add`, `[[sa]]`).";
    SA_EXPIRED = 14, "sa_expired", "the association has reached its hard lifetime, or has no sequence numbers left",
        "Add a new association before the old one ends: at its soft lifetime.";
    ESP_TOO_BIG = 15, "esp_too_big", "the ESP packet would be longer than the way takes, and may not be fragmented",
        "Lower the MTU of the hosts, or set `df` of the association to `copy` or `clear`.";
    ESP_NO_ROUTE = 16, "esp_no_route", "there is no route to the peer of the tunnel, or it leads into a tunnel interface",
        "Add a route to the `destination` of the association that does not lead into a tunnel interface.";
    ESP_NO_INTERFACE = 17, "esp_no_interface", "no tunnel interface has the `if_id` of the association, or it is down",
        "Add a port with `backend = \"ipsec\"` and this `if_id`.";
    ESP_FROM_HOST = 18, "esp_from_host", "Linux sealed a packet itself by an association of the gateway: numbers would come twice",
        "See `disable_xfrm` in ipsec.md; IPv6 has no such setting: use a tunnel interface for packets of Linux itself.";
    ESP_ANSWER = 19, "esp_answer", "an answer of the router to a packet that came by an association would leave unprotected",
        "Nothing: it would show what was inside. A policy that protects it lets it leave.";
    ESP_MIN_MTU = 20, "esp_min_mtu", "an IPv6 packet of 1,280 bytes at most does not fit the way when it is sealed, and may not be fragmented",
        "Raise the MTU of the link. In a tunnel over IPv4, set `df` of the association to `copy` or `clear`.";
}
