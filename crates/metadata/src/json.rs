//! How the vocabulary of `model` stands in JSON: numbers as numbers, ids as 22 characters.
//!
//! `model` itself knows no serialization: that is a promise, made here where records are written.

macro_rules! numbers {
    ($($module:ident $type:ident($inner:ty)),* $(,)?) => {
        $(pub(crate) mod $module {
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            pub(crate) fn serialize<S: Serializer>(
                value: &model::$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                value.0.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<model::$type, D::Error> {
                <$inner>::deserialize(deserializer).map(model::$type)
            }
        })*
    };
}

numbers!(
    broker_id BrokerId(i32),
    broker_epoch BrokerEpoch(i64),
    leader_epoch LeaderEpoch(i32),
    partition_index PartitionIndex(i32),
    producer_id ProducerId(i64),
    timestamp Timestamp(i64),
);

/// The formula that places groups: its name. An unknown name is an error, as an unknown type of record is.
pub(crate) mod group_placement {
    use model::partitioner::GroupPlacement;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        placement: &GroupPlacement,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(placement.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<GroupPlacement, D::Error> {
        let name = String::deserialize(from)?;
        GroupPlacement::from_name(&name)
            .ok_or_else(|| D::Error::custom(format!("unknown group placement {name}")))
    }
}

/// A list of brokers: a list of numbers.
pub(crate) mod broker_ids {
    use model::BrokerId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(ids: &[BrokerId], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(|id| id.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<BrokerId>, D::Error> {
        Ok(Vec::<i32>::deserialize(from)?.into_iter().map(BrokerId).collect())
    }
}

/// A list of partitions of one topic: a list of numbers.
pub(crate) mod partition_indexes {
    use model::PartitionIndex;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        indexes: &[PartitionIndex],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(indexes.iter().map(|index| index.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<PartitionIndex>, D::Error> {
        Ok(Vec::<i32>::deserialize(from)?.into_iter().map(PartitionIndex).collect())
    }
}

/// An id: its 22 characters.
pub(crate) mod uuid {
    use model::Uuid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(id: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// A list of ids.
pub(crate) mod uuids {
    use model::Uuid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(ids: &[Uuid], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(ids.iter().map(Uuid::to_string))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Uuid>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
