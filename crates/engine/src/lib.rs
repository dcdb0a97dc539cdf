//! cryptline-engine
