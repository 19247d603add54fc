//! Carries metadata records between nodes by openraft, one voter or many
