package nftables

// mend writes elements that have other values again, so that the table need not be read: that takes seconds for 250,000
// elements. It fails if others have changed them once more.
func (o *output) mend(all []altered) error {
	var in space
	for i := range all {
		if o.batch.Full() {
			if err := o.commit(); err != nil {
				return err
			}
		}
		want := all[i].of.encode(&all[i].element, &in)
		o.batch.Delete(all[i].of.name, want.Key)
		o.batch.Add(all[i].of.name, &want)
		o.elements++
	}
	return o.commit()
}
