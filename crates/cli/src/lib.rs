//! cryptline
