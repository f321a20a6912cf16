//! The one provider of cryptography for TLS in this process.

/// Names ring as rustls' provider. Every client is built after this; doing it twice changes
/// nothing.
pub fn choose_provider() {
    // The error says that a provider was chosen before: by the first client.
    drop(rustls::crypto::ring::default_provider().install_default());
}
